"""Reads a drawing back from its SVG."""

import re
import xml.etree.ElementTree as ET

import numpy as np

NS = "{http://www.w3.org/2000/svg}"


def elements(svg: str, tag: str) -> list[dict[str, str]]:
    return [item.attrib for item in ET.fromstring(svg).iter(NS + tag)]  # noqa: S314


def texts(svg: str) -> list[str]:
    return [item.text or "" for item in ET.fromstring(svg).iter(NS + "text")]  # noqa: S314


def diamonds(svg: str) -> list[tuple[float, float]]:
    """Centres of the diamonds: closed paths of five points on white."""
    centres = []
    for path in elements(svg, "path"):
        if path["fill"] == "#ffffff":
            corners = points(path["d"])
            centres.append((corners[1][0], corners[0][1]))
    return centres


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) (-?[\d.]+)", path)]


def axis(svg: str, unit: str = "") -> tuple[float, float]:
    """Slope and place of 0 of the x axis of bars, from its ticks."""
    ticks = {}
    for item in ET.fromstring(svg).iter(NS + "text"):  # noqa: S314
        if item.get("text-anchor") == "middle":
            number = (item.text or "").removesuffix(f" {unit}").replace("−", "-").replace(",", "")
            ticks[float(number)] = float(item.attrib["x"])
    slope, start = np.polyfit(list(ticks), list(ticks.values()), 1)
    return float(slope), float(start)
