"""unet3d of MLPerf Storage: whole records of 147 MB (medical images), read in batches."""
