"""The process that reads blocks; see ``serving.py`` for what it says and hears."""

from wattload.loaders.gpu.serving import serve

if __name__ == "__main__":
    serve()
