"""Codecs for the API formats of providers: messages are read and written without loss."""
