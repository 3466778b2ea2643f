'use strict';
// How numbers and times are written: three significant digits and a unit, the same everywhere.

const NS = { us: 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9, d: 86400e9, y: 365.25 * 86400e9 };

// duration writes nanoseconds: 1.25 ms.
function duration(ns) {
	const sign = ns < 0 ? '\u2212' : '';
	const v = Math.abs(ns);
	if (v === 0) return '0';
	for (const [name, size] of [['y', NS.y], ['d', NS.d], ['h', NS.h], ['min', NS.min], ['s', NS.s], ['ms', NS.ms], ['\u00b5s', NS.us]]) {
		if (v >= size) return `${sign}${short(v / size)}\u00a0${name}`;
	}
	return `${sign}${short(v)}\u00a0ns`;
}

// short is a number of three significant digits, without zeros at its end; large ones keep all digits before the point.
function short(v) {
	if (v >= 100) return full(v);
	return String(Number(v.toPrecision(3)));
}

// compact writes a count where there is little room: 12.3k.
function compact(n) {
	for (const [name, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
		if (n >= size * (name === 'k' ? 10 : 1)) return short(n / size) + name;
	}
	return Number.isInteger(n) ? full(n) : short(n);
}

// full writes a count with all its digits.
function full(n) { return Math.round(n).toLocaleString('en-US'); }

// plural is a count with its noun.
function plural(n, noun) { return `${full(n)} ${noun}${n === 1 ? '' : 's'}`; }

// bytes writes an amount of memory.
function bytes(n) {
	for (const [name, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
		if (n >= size) return [short(n / size), name];
	}
	return [String(n), 'B'];
}

// clockTime is the time of a day to the millisecond, without a date. The wheel's text is cut, not parsed: Date would lose what is finer.
function clockTime(rfc3339) {
	const m = /T(\d\d:\d\d:\d\d)(\.\d+)?/.exec(rfc3339);
	return m ? m[1] + ((m[2] || '.') + '000').slice(0, 4) : rfc3339;
}

// span says which time from now on a cell stands for.
function span(level, cell) {
	const ns = level.slot_ns * level.slots_per_cell;
	return `${cell === 0 ? 'now' : '+' + duration(cell * ns)} to +${duration((cell + 1) * ns)}`;
}

// slotNames are the numbers of the slots of a cell.
function slotNames(level, cell) {
	const size = level.cells.length * level.slots_per_cell;
	const first = (level.hand + cell * level.slots_per_cell) % size;
	return level.slots_per_cell === 1 ? String(first) : `${first}\u2013${(first + level.slots_per_cell - 1) % size}`;
}

const SVG = 'http://www.w3.org/2000/svg';

// make makes an element of the page, svg one of a drawing. Text is set as text: names of wheels are never read as HTML.
function make(tag, attributes = {}, ...children) { return fill(document.createElement(tag), attributes, children); }
function svg(tag, attributes = {}, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }

function fill(element, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
	element.append(...children);
	return element;
}

// write changes a text only where it differs, so that a reader is not told again and again.
function write(element, text) { if (element.textContent !== text) element.textContent = text; }

function byId(id) { return document.getElementById(id); }
