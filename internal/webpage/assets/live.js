'use strict';
// Live is a page that asks its server for one thing, such as a wheel, once a second while the page
// is visible. A page extends it with take(answer), which shows an answer, sets shown to the thing
// in the answer and returns the text of the notice.

const INTERVAL = 1000, RETRY = 3000, PATIENCE = 10000; // ms

class Live {
	// parameter is the parameter of the address that names the thing.
	constructor(parameter) {
		this.parameter = parameter;
		this.chosen = new URLSearchParams(location.search).get(parameter); // null: the first one
		this.shown = null;
		this.paused = false;
		this.pasts = new Map(); // by name
		this.timer = 0;
		this.request = null;
		byId('pause').addEventListener('click', () => this.pause(!this.paused));
		document.addEventListener('visibilitychange', () => { if (document.hidden) this.rest(); else this.ask(); });
	}

	// ask fetches the thing now and once a second from then on.
	async ask() {
		this.rest();
		if (this.paused || document.hidden) return;
		const request = this.request = new AbortController();
		const patience = setTimeout(() => request.abort(), PATIENCE);
		let next = INTERVAL;
		try {
			const query = new URLSearchParams({ format: 'json' });
			if (this.chosen !== null) query.set(this.parameter, this.chosen);
			const response = await fetch(`?${query}`, { signal: request.signal, cache: 'no-store', headers: { Accept: 'application/json' } });
			const json = (response.headers.get('Content-Type') || '').startsWith('application/json');
			if (!response.ok && !json) throw new Error(`the server says ${response.status}`);
			if (!json) throw new Error('what came is not JSON; a login may have run out');
			const answer = await response.json();
			if (this.request !== request) return; // another thing was chosen meanwhile
			const notice = this.take(answer);
			if (!response.ok && response.status !== 404) throw new Error(answer.error);
			this.notice(notice);
			this.state('live', 'live');
		} catch (error) {
			if (this.request !== request) return;
			this.lost(error.name === 'AbortError' ? `none in ${PATIENCE / 1000} s` : error.message);
			next = RETRY;
		} finally {
			clearTimeout(patience);
		}
		this.timer = setTimeout(() => this.ask(), next);
	}

	// lost shows that there is no answer, and the age of the figures on the page.
	lost(why) {
		const since = this.shown ? `What is shown is of ${clockTime(this.shown.taken).slice(0, 8)}. ` : '';
		this.state('lost', 'no answer');
		this.notice(`No answer: ${why}. ${since}Trying again every ${RETRY / 1000} seconds.`);
		document.title = `no answer${this.shown ? ` \u2013 ${this.shown.name}` : ''}`;
	}

	// rest ends the request under way and plans no other.
	rest() {
		clearTimeout(this.timer);
		this.timer = 0;
		if (this.request) this.request.abort();
		this.request = null;
	}

	// past adds a look at a thing to the remembered ones and returns them.
	past(thing) {
		if (!this.pasts.has(thing.name)) this.pasts.set(thing.name, new Past());
		const past = this.pasts.get(thing.name);
		past.add(thing);
		return past;
	}

	choose(name) {
		this.chosen = name;
		history.replaceState(null, '', `?${new URLSearchParams({ [this.parameter]: name })}`);
		if (this.paused) this.pause(false); else this.ask();
	}

	pause(paused) {
		this.paused = paused;
		byId('pause').setAttribute('aria-pressed', String(paused));
		this.rest();
		if (paused) this.state('paused', 'paused'); else this.ask();
	}

	state(name, text) {
		byId('state').dataset.state = name;
		byId('main').classList.toggle('stale', name === 'lost');
		write(byId('state-text'), text);
	}

	notice(text) {
		byId('notice').hidden = text === '';
		write(byId('notice'), text);
	}
}

// theme follows the system until the user chooses, and remembers the choice if the browser lets it.
const theme = {
	names: ['auto', 'light', 'dark'],

	start() {
		let kept = null;
		try { kept = localStorage.getItem('timingwheel-theme'); } catch { /* the browser keeps nothing: then it is auto */ }
		this.set(this.names.includes(kept) ? kept : 'auto');
		byId('theme').addEventListener('click', () => this.set(this.names[(this.names.indexOf(this.name) + 1) % this.names.length]));
	},

	set(name) {
		this.name = name;
		if (name === 'auto') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
		write(byId('theme'), `Theme: ${name}`);
		try { localStorage.setItem('timingwheel-theme', name); } catch { /* as above */ }
	},
};

theme.start();
