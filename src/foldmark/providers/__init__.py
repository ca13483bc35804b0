"""Requests to model providers."""
