"""Retrieval episodes: running text with needles "The magic number of Lisbon is 4817."

An Episode is text; the caller turns it into tokens. Training, the checks during
training and retrieval.jsonl all come from here, each with its own text and seed.
"""
import dataclasses
import random
import re

CITIES = """Lisbon Paris London Berlin Madrid Rome Vienna Prague Warsaw Budapest Athens Dublin Oslo
Stockholm Helsinki Copenhagen Brussels Amsterdam Zurich Geneva Milan Naples Turin Venice Florence
Barcelona Valencia Seville Porto Lyon Marseille Bordeaux Toulouse Hamburg Munich Cologne Dresden
Leipzig Bremen Krakow Riga Tallinn Vilnius Minsk Kyiv Odessa Moscow Sofia Bucharest Belgrade Zagreb
Sarajevo Skopje Tirana Istanbul Ankara Izmir Beirut Damascus Amman Jerusalem Cairo Tunis Algiers
Casablanca Dakar Accra Lagos Nairobi Kampala Lusaka Harare Durban Pretoria Luanda Tehran Baghdad
Riyadh Doha Dubai Muscat Karachi Lahore Delhi Mumbai Chennai Kolkata Dhaka Colombo Bangkok Hanoi
Manila Jakarta Singapore Taipei Seoul Tokyo Osaka Kyoto Nagoya Beijing Shanghai Sydney Melbourne
Brisbane Perth Adelaide Auckland Wellington Honolulu Seattle Portland Denver Chicago Boston Houston
Dallas Phoenix Detroit Toronto Montreal Ottawa Vancouver Havana Lima Quito Bogota Caracas Santiago
Montevideo Brasilia""".split()
STEM = "The magic number of {} is"


@dataclasses.dataclass
class Episode:
    haystack: str        # running text with the needles in it
    needles: list        # (city, digits, offset of the digits in haystack)


def sentences(text, rng, characters):
    """About so many characters of whole sentences from a random place of text."""
    start = rng.randrange(max(1, len(text) - characters - 4000))
    piece = text[start:start + characters + 2000].replace("\f", " ")
    found = [" ".join(s.split()) for s in re.split(r"(?<=[.!?])\s+", piece)]
    return [s for s in found[1:-1] if 20 <= len(s) <= 400 and "magic number" not in s]


def fill(text, rng, room, count):
    """Sentences that together take at most room tokens; count(str) -> tokens."""
    chosen, used = [], 0
    for s in sentences(text, rng, room * 6):
        used += count(" " + s)
        if used > room:
            break
        chosen.append(s)
    return chosen


def make(filler, n, rng, taken=(), depth=None):
    """n needles at random sentence boundaries; with depth (0..1) the first one stands there."""
    cities = rng.sample([c for c in CITIES if c not in taken], n)
    facts = [(c, f"{rng.randrange(10000):04d}") for c in cities]
    places = [rng.randint(0, len(filler)) for _ in facts]
    if depth is not None:
        places[0] = round(depth * len(filler))
    # At depth 0 the asked needle is the very first sentence, at 1 the very last.
    def rank(i):
        tie = {0.0: -1, 1.0: 1}.get(depth, 0) if i == 0 else rng.random() - 0.5
        return places[i], tie
    order = sorted(range(n), key=rank)
    text, needles, at = "", [None] * n, 0
    for gap in range(len(filler) + 1):
        while at < n and places[order[at]] == gap:
            city, digits = facts[order[at]]
            text += (" " if text else "") + STEM.format(city) + " "
            needles[order[at]] = (city, digits, len(text))
            text += digits + "."
            at += 1
        if gap < len(filler):
            text += (" " if text else "") + filler[gap]
    return Episode(text, needles)


def held_out(text, n, seed, depth, room, count):
    """-> (context, answer, span, episode): one question, in the form of retrieval.jsonl."""
    rng = random.Random(seed)
    stem_tokens = 13                     # of a needle or a question, a little over the truth
    filler = fill(text, rng, room - stem_tokens * (n + 1) - 2, count)
    episode = make(filler, n, rng, depth=depth)
    city, digits, offset = episode.needles[0]
    context = episode.haystack + " " + STEM.format(city)
    return context, f" {digits}.", [offset, offset + len(digits)], episode
