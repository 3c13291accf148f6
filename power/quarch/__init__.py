"""A Quarch power module (PPM, PAM) behind QIS: its protocol, its stream, its clock."""
