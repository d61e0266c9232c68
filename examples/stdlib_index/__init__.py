"""An index of Python source files: a small application that leaves its work to millpond."""
