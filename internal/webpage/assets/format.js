'use strict';
// Formats of numbers and times: three significant digits and a unit, or two units from a minute on.

const NS = { us: 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9, d: 86400e9, y: 365.25 * 86400e9 };
const COARSE = [['y', NS.y, 'd', NS.d], ['d', NS.d, 'h', NS.h], ['h', NS.h, 'min', NS.min], ['min', NS.min, 's', NS.s]];
const FINE = [['s', NS.s], ['ms', NS.ms], ['\u00b5s', NS.us], ['ns', 1]];
const LONGEST = 9.2e18; // ns, about the largest time.Duration

// duration formats nanoseconds: 1.25 ms, 1 min 6 s.
function duration(ns) {
	const sign = ns < 0 ? '\u2212' : '', v = Math.abs(ns);
	if (v === 0) return '0';
	if (v >= LONGEST) return `${sign}292\u00a0y or more`;
	for (const [name, size, below, part] of COARSE) {
		if (rounded(v / part) * part < size) continue; // 59.96 s would round to 60 s, so it is written as 1 min
		const parts = Math.round(v / part);
		const whole = Math.floor(parts * part / size), rest = Math.round((parts * part - whole * size) / part);
		return `${sign}${full(whole)}\u00a0${name}${rest > 0 && whole < 100 ? `\u00a0${rest}\u00a0${below}` : ''}`;
	}
	for (const [name, size] of FINE) if (rounded(v / size) >= 1) return `${sign}${short(v / size)}\u00a0${name}`;
	return `${sign}${short(v)}\u00a0ns`;
}

// rounded returns v with three significant digits.
function rounded(v) { return Number(v.toPrecision(3)); }

// short formats three significant digits without trailing zeros. Numbers from 100 on keep all
// digits before the decimal point.
function short(v) {
	if (v >= 100) return full(v);
	return String(rounded(v));
}

// compact formats a count in little space: 12.3k.
function compact(n) {
	for (const [name, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
		if (name === 'k' ? n >= 10 * size : rounded(n / size) >= 1) return short(rounded(n / size)) + name; // 999,999 is 1M, not 1,000k
	}
	return Number.isInteger(n) ? full(n) : short(n);
}

// full formats a count with all digits.
function full(n) { return Math.round(n).toLocaleString('en-US'); }

// plural formats a count with its noun.
function plural(n, noun) { return `${full(n)} ${noun}${n === 1 ? '' : 's'}`; }

// bytes returns an amount of memory and its unit.
function bytes(n) {
	for (const [name, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
		if (n >= size) return [short(n / size), name];
	}
	return [String(n), 'B'];
}

// clockTime returns the time of day with milliseconds. It cuts the text and does not parse it, so
// the time stays in the server's time zone.
function clockTime(rfc3339) {
	const m = /T(\d\d:\d\d:\d\d)(\.\d+)?/.exec(rfc3339);
	return m ? m[1] + ((m[2] || '.') + '000').slice(0, 4) : rfc3339;
}

const SVG = 'http://www.w3.org/2000/svg';

// make creates an HTML element and svg an SVG element. Text is never parsed as HTML.
function make(tag, attributes = {}, ...children) { return fill(document.createElement(tag), attributes, children); }
function svg(tag, attributes = {}, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }

function fill(element, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
	element.append(...children);
	return element;
}

// write sets the text of an element only if it differs, so that screen readers do not announce it
// again.
function write(element, text) { if (element.textContent !== text) element.textContent = text; }

function byId(id) { return document.getElementById(id); }
