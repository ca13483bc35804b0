"""Errors that the API answers with."""

from http import HTTPStatus


class ApiError(Exception):
    """An error that the client is told."""

    status = HTTPStatus.BAD_REQUEST
    code = "bad_request"


class NotFound(ApiError):
    status = HTTPStatus.NOT_FOUND
    code = "not_found"


class Unauthorized(ApiError):
    status = HTTPStatus.UNAUTHORIZED
    code = "unauthorized"


class Invalid(ApiError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "invalid"
