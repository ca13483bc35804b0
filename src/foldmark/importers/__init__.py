"""Transcripts of other programs, each read by one small module over the wires' codecs."""
