package config

import (
	"errors"
	"reflect"
)

// Where a value comes from.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "env"
	FromFlag    = "flag"
)

// What the change of a key takes.
const (
	ReloadInPlace = "r"
	ReloadRebind  = "b"
	ReloadRestart = "x"
)

// origin is the kind of place a value comes from, and the place.
type origin struct {
	source, where string
	inside        func(member string) string // the place of a member, if the value is a table of a file
}

// Entry is one key as it is in force, for people. Values are spelt as TOML has them, secrets as "***".
type Entry struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Source  string `json:"source"`          // FromDefault, FromFile, FromEnv or FromFlag
	Where   string `json:"where,omitempty"` // "ronbox.toml:41:3", "RONBOX_STORE__MAX_BYTES", "flag --data-dir", "" for a default
	Reload  string `json:"reload"`          // ReloadInPlace, ReloadRebind or ReloadRestart
}

// Explain is Load that also tells of every key, in the order of the sections, what it is, would be and why.
func Explain(o LoadOptions) (*Config, []Entry, error) {
	l := load(o)
	if err := errors.Join(l.faults...); err != nil {
		return nil, nil, err
	}
	defaults := leaves(Default())
	out := make([]Entry, len(l.all))
	for i, one := range l.all {
		from, set := l.from[one.key]
		if !set {
			from.source = FromDefault
		}
		out[i] = Entry{
			Key: one.key, Value: one.shown(), Default: defaults[i].shown(), Source: from.source, Where: from.where, Reload: one.reload,
		}
	}
	return l.cfg, out, nil
}

// Change is one key that differs between two configurations.
type Change struct {
	Key    string `json:"key"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reload string `json:"reload"`
}

// Diff lists what is different in next, in the order of the sections. Secrets are shown as "***", also where they differ.
func Diff(old, next *Config) []Change {
	var out []Change
	was := leaves(old)
	for i, is := range leaves(next) {
		if !reflect.DeepEqual(was[i].value.Interface(), is.value.Interface()) && was[i].text() != is.text() {
			out = append(out, Change{Key: is.key, From: was[i].shown(), To: is.shown(), Reload: is.reload})
		}
	}
	return out
}
