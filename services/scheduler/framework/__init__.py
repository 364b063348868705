"""The framework of plugins: base classes, declarations, reasons, profiles and configuration."""
