"""Browser sessions: the token is in a cookie that no script can read and that other sites cannot use."""

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from console.openapi import COOKIE, PREFIX
from console.operation import Answer, Body, Call, Operation
from console.problems import Problem

__all__ = ["OPERATIONS"]


class SignIn(Body):
    token: Annotated[str, Field(min_length=1, max_length=200, description="The token from `candlewright keys new`.")]


async def sign_in(call: Call) -> Response:
    body: SignIn = call.body
    token = body.token.strip()
    if call.services.tokens.holder_of(token) is None:
        raise Problem(401, "unauthorised", "this token is not known, or was removed")
    answer = Response(status_code=204)
    # Only the browser knows whether a TLS proxy is in front of this server.
    is_secure = call.request.headers.get("origin", "").startswith("https:") or call.request.url.scheme == "https"
    answer.set_cookie(COOKIE, token, path=PREFIX, secure=is_secure, httponly=True, samesite="strict")
    return answer


async def sign_out(call: Call) -> Response:
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path=PREFIX, httponly=True, samesite="strict")
    return answer


OPERATIONS = (
    Operation(
        method="POST",
        path="/session",
        handler=sign_in,
        summary="Store a token in a cookie, for a browser",
        answers={204: Answer("Signed in until the browser is closed.")},
        body=SignIn,
        problems=(401, 403),
        is_public=True,
        tag="platform",
    ),
    Operation(
        method="DELETE",
        path="/session",
        handler=sign_out,
        summary="Delete the cookie",
        answers={204: Answer("Signed out.")},
        problems=(403,),
        is_public=True,
        tag="platform",
    ),
)
