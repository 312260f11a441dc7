"""The pages for people: HTML that works without JavaScript.

`router` has the routes of the pages. A page says who may see it as a handler of the API does
(allocator/server/access.py), and forms have the field `csrf` with `caller.session.csrf`. What pages
change, they change by the handlers of the API.
"""

from fastapi import APIRouter

from allocator.server.pages import forms, logins, reading

router = APIRouter(include_in_schema=False)
for part in (logins, forms, reading):
    router.include_router(part.router)
