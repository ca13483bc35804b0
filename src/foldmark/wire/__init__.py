"""Codecs of the providers' APIs: their messages, read and written without loss."""
