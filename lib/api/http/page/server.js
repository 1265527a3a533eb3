// Whether the server is there. /health is asked every few seconds, and sooner when a request has failed; while nobody
// answers, with longer and longer pauses. Listeners hear of each change: "well", "ill" (with its reason) or "away".

const PAUSE_WELL_MS = 5000, PAUSE_ILL_MS = 1000, PAUSE_AWAY_MS = 500, PAUSE_AWAY_MS_MAX = 8000, PATIENCE_MS = 5000;

let state = "", reason = "", pause = 0, timer = 0, checking = null, isWatchedOtherwise = false;
const listeners = [];

export function onServer(listener) {
  listeners.push(listener);
}

function become(nextState, nextReason) {
  if (nextState === state && nextReason === reason) return;
  const was = state;
  state = nextState;
  reason = nextReason;
  for (const listener of listeners) listener(state, reason, was);
}

function nextPause() {
  if (state === "well") return PAUSE_WELL_MS;
  if (state === "ill") return PAUSE_ILL_MS;
  pause = Math.min(pause ? 2 * pause : PAUSE_AWAY_MS, PAUSE_AWAY_MS_MAX);
  return pause;
}

async function look() {
  try {
    const response = await fetch("/health", {cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS)});
    const health = await response.json();
    pause = 0;
    if (response.ok) become("well", "");
    else become("ill", health.reason || `it answers ${response.status}`);
  } catch {
    become("away", "");
  }
}

// Asks now. Resolves when `onServer` has heard the answer.
export function checkServer() {
  clearTimeout(timer);
  checking ||= look().finally(() => {
    checking = null;
    timer = setTimeout(onTimer, nextPause());
  });
  return checking;
}

function onTimer() {
  if ((document.hidden || isWatchedOtherwise) && state === "well") timer = setTimeout(onTimer, PAUSE_WELL_MS);
  else checkServer();
}

// The live view hears from the server four times a second: nobody needs to ask meanwhile.
export function serverIsWatched(isWatched) {
  isWatchedOtherwise = isWatched;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) checkServer();
});
