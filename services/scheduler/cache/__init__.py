"""Arrays over nodes and indexes over pods, derived from the state. Disposable: rebuilt from the state at any time."""
