"""Training on whole records, as MLPerf Storage does: unet3d and retinanet."""
