"""The arithmetic behind runtimes and rejections, written out for `koord explain`."""
