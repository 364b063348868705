"""The simulated API server: admission, storage, and the requests of clients."""
