package config

import (
	"strconv"
	"strings"
)

// Fault describes one fault of the configuration.
type Fault struct {
	// "ronbox.toml:41:3", "RONBOX_STORE__MAX_BYTES", "flag --data-dir", "default", or "" if the
	// configuration was not loaded
	Where  string
	Key    string // "store.max_bytes", or "" without a key
	Value  string // as given, quoted; "" without a value
	Reason string // "must be at least 1MiB"
	Cause  error  // error of the system, if any
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// Error returns the fault as `where: key = value: reason`, without unknown parts.
func (f *Fault) Error() string {
	subject := f.Key
	if f.Key != "" && f.Value != "" {
		subject += " = " + f.Value
	}
	var parts []string
	for _, p := range []string{f.Where, subject, f.Reason} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults returns every fault in err, in order.
func Faults(err error) []*Fault {
	switch e := err.(type) {
	case *Fault:
		return []*Fault{e}
	case interface{ Unwrap() error }:
		return Faults(e.Unwrap())
	case interface{ Unwrap() []error }:
		var out []*Fault
		for _, one := range e.Unwrap() {
			out = append(out, Faults(one)...)
		}
		return out
	}
	return nil
}

// flattenErrors returns the errors that errors.Join has joined.
func flattenErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flattenErrors(e)...)
	}
	return out
}

// place converts an error of a section to a Fault. The text of the error begins with the key.
func (l *loader) place(section string, err error) *Fault {
	text := err.Error()
	word := text
	if end := strings.IndexAny(text, " :="); end >= 0 {
		word = text[:end]
	}
	for _, key := range []string{section + "." + word, word} {
		found := find(l.all, key)
		if found == nil {
			continue
		}
		f := &Fault{Where: l.whence(key), Key: key}
		f.Value, f.Reason = found.given(text[len(word):])
		return found.redact(f)
	}
	return &Fault{Key: section, Reason: text}
}

// given splits the text that follows the key in an error of a section, such as
// ` = "1ms": must be 1s..30s`, into the value and the reason. It quotes the value if TOML does and
// the section did not.
func (l leaf) given(said string) (value, reason string) {
	rest, ok := strings.CutPrefix(said, " = ")
	if !ok {
		return "", strings.TrimLeft(said, " :")
	}
	if value, err := strconv.QuotedPrefix(rest); err == nil {
		return value, strings.TrimPrefix(rest[len(value):], ": ")
	}
	value, reason, _ = strings.Cut(rest, ": ")
	if strings.HasPrefix(l.text(), `"`) {
		value = quote(value)
	}
	return value, reason
}

// whence returns the place where the value of key was set, FromDefault for a default. A default can
// be invalid too, because another key bounds it.
func (l *loader) whence(key string) string {
	if from, set := l.from[key]; set {
		return from.where
	}
	if l.from == nil {
		return "" // cfg was not loaded
	}
	return FromDefault
}
