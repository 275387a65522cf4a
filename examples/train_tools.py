"""Two tools for `beforehand run --tools examples/train_tools.py`. Put your own functions in their place."""

from typing import Literal

from beforehand import tool


@tool
async def find_trains(to: str, date: str = "today") -> str:
    """List the trains to a destination on a date, with the fare for each class."""
    return f"Train 305 to {to}, {date}, 08:10: first class 48,000, tourist 27,000. Asked for by Ana Ruiz, DNI 30.123.456"


@tool
async def book_ticket(train: int, seat_class: Literal["first", "tourist"]) -> str:
    """Book one seat on a train for the employee who is asking."""
    return f"Booked: train {train}, {seat_class} class, for Ana Ruiz, DNI 30.123.456"
