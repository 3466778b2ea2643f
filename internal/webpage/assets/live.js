'use strict';
// Live is a page that polls its server once a second for one subject, such as a wheel, while the
// page is visible. A subclass implements take(answer), which shows an answer, sets shown to its
// subject and returns the text of the notice.

const INTERVAL = 1000, RETRY = 3000, TIMEOUT = 10000; // ms

class Live {
	// parameter is the query parameter with the name of the subject.
	constructor(parameter) {
		this.parameter = parameter;
		this.chosen = new URLSearchParams(location.search).get(parameter); // null: the first subject
		this.shown = null;
		this.paused = false;
		this.pasts = new Map(); // recent samples by the names of subjects
		this.timer = 0;
		this.request = null;
		byId('pause').addEventListener('click', () => this.pause(!this.paused));
		document.addEventListener('visibilitychange', () => { if (document.hidden) this.cancel(); else this.ask(); });
	}

	// ask fetches the subject now and then once a second.
	async ask() {
		this.cancel();
		if (this.paused || document.hidden) return;
		const request = this.request = new AbortController();
		const timeout = setTimeout(() => request.abort(), TIMEOUT);
		let next = INTERVAL;
		try {
			const query = new URLSearchParams({ format: 'json' });
			if (this.chosen !== null) query.set(this.parameter, this.chosen);
			const response = await fetch(`?${query}`, { signal: request.signal, cache: 'no-store', headers: { Accept: 'application/json' } });
			const json = (response.headers.get('Content-Type') || '').startsWith('application/json');
			if (!response.ok && !json) throw new Error(`the server returned status ${response.status}`);
			if (!json) throw new Error('the answer is not JSON; your login may have expired');
			const answer = await response.json();
			if (this.request !== request) return; // another subject was chosen meanwhile
			const notice = this.take(answer);
			if (!response.ok && response.status !== 404) throw new Error(answer.error);
			this.notice(notice);
			this.state('live', 'live');
		} catch (error) {
			if (this.request !== request) return;
			this.lost(error.name === 'AbortError' ? `timed out after ${TIMEOUT / 1000} s` : error.message);
			next = RETRY;
		} finally {
			clearTimeout(timeout);
		}
		this.timer = setTimeout(() => this.ask(), next);
	}

	// lost shows that there is no answer, and the time of the figures on the page.
	lost(why) {
		const since = this.shown ? `The figures are from ${clockTime(this.shown.taken).slice(0, 8)}. ` : '';
		this.state('lost', 'no answer');
		this.notice(`No answer: ${why}. ${since}Retrying every ${RETRY / 1000} seconds.`);
		document.title = `no answer${this.shown ? ` \u2013 ${this.shown.name}` : ''}`;
	}

	// cancel aborts the current request and the timer for the next one.
	cancel() {
		clearTimeout(this.timer);
		this.timer = 0;
		if (this.request) this.request.abort();
		this.request = null;
	}

	// past adds a sample of a subject and returns all recent samples of that subject.
	past(subject) {
		if (!this.pasts.has(subject.name)) this.pasts.set(subject.name, new Past());
		const past = this.pasts.get(subject.name);
		past.add(subject);
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
		this.cancel();
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

// theme follows the system until the user chooses a theme. The browser's storage keeps the choice.
const theme = {
	names: ['auto', 'light', 'dark'],

	start() {
		let kept = null;
		try { kept = localStorage.getItem('timingwheel-theme'); } catch { /* without storage the theme is auto */ }
		this.set(this.names.includes(kept) ? kept : 'auto');
		byId('theme').addEventListener('click', () => this.set(this.names[(this.names.indexOf(this.name) + 1) % this.names.length]));
	},

	set(name) {
		this.name = name;
		if (name === 'auto') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
		write(byId('theme'), `Theme: ${name}`);
		try { localStorage.setItem('timingwheel-theme', name); } catch { /* without storage the choice is lost */ }
	},
};

theme.start();
