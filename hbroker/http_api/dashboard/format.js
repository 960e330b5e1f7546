// Numbers, sizes and times as text.

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** 12,345; 1.23M */
export const count = (number) => (Math.abs(number) < 100_000 ? GROUPED : COMPACT).format(number);

/** What happens in a second: 0; 0.4; 1,250 */
export const rate = (number) => (number > 0 && number < 9.95 ? number.toFixed(1) : count(number));

/** 0 B; 1.5 kB; 23 MB */
export function bytes(number) {
  let unit = 0;
  let value = number;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : Number(value.toPrecision(2))} ${UNITS[unit]}`;
}

/** A part of one processor: 3%; 140% */
export const percent = (part) => `${part > 0 && part < 0.0995 ? (100 * part).toFixed(1) : Math.round(100 * part)}%`;

/** 12 s; 3 min; 5 h; 2 d */
export function duration(seconds) {
  for (const [size, unit] of [[86_400, "d"], [3_600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${seconds < 9.95 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
}

/** For how long what waits would be delivered; null: nothing is delivered, and something waits. */
export const lag = (seconds) => (seconds === null ? "∞" : seconds === 0 ? "0" : duration(seconds));

/** The time of day of a date. */
export const clock = (date) => CLOCK.format(date);

/** A date with its time. */
export const dateTime = (date) => DATE.format(date);

/** A topic prefix. That of the root is empty. */
export const subtree = (prefix) => (prefix === "" ? "(all)" : prefix);

/** A text of at most `most` characters. */
export const cut = (text, most) =>
  text.length > most ? `${text.slice(0, most)}… (${count(text.length - most)} more)` : text;

const MOST_PAYLOAD = 2_000;

/** The payload of a message of the API, cut if it is long. Bytes that are not text are shown as base64. */
export const payload = ({ payload: text, payload_base64: base64 }) =>
  text === null ? `base64: ${cut(base64, MOST_PAYLOAD)}` : cut(text, MOST_PAYLOAD);
