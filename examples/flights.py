"""Make the tables of docs/decide.md: flights, and the airlines, airports and planes they refer to.

Run it with `python examples/flights.py FOLDER` (default: flights). Whether a flight is late depends
on its plane and its two airports. The flights since November have not been looked at: no label.
Of the others, 5 in 100 got the wrong label; their numbers go to FOLDER-wrong.txt.
"""

import csv
import random
import sys
from datetime import date, timedelta
from pathlib import Path

FLIGHTS, PLANES, AIRPORTS, AIRLINES = 800, 60, 24, 6


def write(path: Path, header: str, rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "flights")
folder.mkdir(parents=True)
draw = random.Random(1)
planes = [[f"N{i:03}", 1990 + draw.randrange(30), draw.randrange(60, 300)] for i in range(PLANES)]
airports = [[f"X{i:02}", f"Airport {i}", draw.randrange(2000)] for i in range(AIRPORTS)]
airlines = [[f"A{i}", f"Airline {i}"] for i in range(AIRLINES)]
bad = {place[0]: draw.gauss(0, 1) for place in [*planes, *airports]}

flights: list[list[object]] = []
wrong: list[str] = []
for number in range(FLIGHTS):
    day = date(2025, 1, 1) + timedelta(days=number * 365 // FLIGHTS)
    plane, (origin, dest) = draw.choice(planes)[0], draw.sample(airports, 2)
    trouble = 2 * bad[plane] + bad[origin[0]] + bad[dest[0]] + draw.gauss(0, 0.5)
    late = trouble > 0.5
    if day.month < 11 and draw.random() < 0.05:
        late = not late
        wrong.append(f"f{number:04}")
    label = "" if day.month >= 11 else "late" if late else "in time"
    carrier = airlines[int(str(plane)[1:]) % AIRLINES][0]
    flights.append(
        [f"f{number:04}", day, draw.randrange(5, 23), carrier, plane, origin[0], dest[0], label]
    )

write(folder / "planes.csv", "tailnum,built,seats", planes)
write(folder / "airports.csv", "airport,name,altitude", airports)
write(folder / "airlines.csv", "carrier,name", airlines)
write(folder / "flights.csv", "flight,date,hour,carrier,tailnum,origin,dest,arrival", flights)
Path(f"{folder}-wrong.txt").write_text("\n".join(wrong) + "\n")
print(f"{len(flights)} flights are in {folder}, {len(wrong)} of them with a wrong label.")
