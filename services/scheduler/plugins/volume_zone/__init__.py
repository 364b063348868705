"""VolumeZone: a bound volume with zone or region labels is used there only."""
