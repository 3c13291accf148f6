"""The process that reads blocks; see ``process.py`` for what it says and hears."""

from wattload.loaders.gpu.process import serve

if __name__ == "__main__":
    serve()
