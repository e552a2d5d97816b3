package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"ronbox/httpapi/front"
)

// Validate joins every fault of cfg, each a *Fault that names its key.
func Validate(cfg *Config) error {
	l := &loader{cfg: cfg, all: leaves(cfg)}
	l.validate()
	return errors.Join(l.faults...)
}

// validate asks each section for its faults and gives each fault its place.
func (l *loader) validate() {
	v := reflect.ValueOf(l.cfg).Elem()
	for i := range v.NumField() {
		section, ok := v.Field(i).Addr().Interface().(interface{ Validate() error })
		if !ok {
			continue
		}
		for _, err := range flattenErrors(section.Validate()) {
			if f := l.place(v.Type().Field(i).Tag.Get("toml"), err); !l.bad[f.Key] {
				l.faults = append(l.faults, f)
			}
		}
	}
	l.validateSocket()
	l.validateAmnesia()
	l.validateSlots()
}

// validateAmnesia refuses to promise to forget and to keep at once.
func (l *loader) validateAmnesia() {
	const key = "store.snapshot_every"
	if every := l.cfg.Store.SnapshotEvery; l.cfg.Amnesia.Enabled && every != 0 {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(key), Key: key, Value: quote(every.String()), Reason: "must be 0s while amnesia.enabled is true",
		})
	}
}

// validateSlots keeps a slot of the ledger's index from outliving the keys in it.
func (l *loader) validateSlots() {
	const key = "ledger.slot_width"
	if width, ttl := l.cfg.Ledger.SlotWidth, l.cfg.Wallet.IdempotencyTTL; width > ttl && !l.bad[key] && !l.bad["wallet.idempotency_ttl"] {
		l.faults = append(l.faults, &Fault{
			Where: l.whence(key), Key: key, Value: quote(width.String()),
			Reason: fmt.Sprintf("must be at most wallet.idempotency_ttl = %q", ttl),
		})
	}
}

// validateSocket judges the path that the data directory makes of the socket's.
func (l *loader) validateSocket() {
	whole := front.UDSConfig{Path: l.cfg.SocketPath()}
	if err := whole.Validate(); err != nil && l.cfg.UDS.Validate() == nil {
		f := l.place("uds", err)
		f.Reason += ": give a shorter one, outside the data directory"
		l.faults = append(l.faults, f)
	}
}

// place turns a section's fault, which begins with the key it is about, into a Fault.
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
		return found.told(f)
	}
	return &Fault{Key: section, Reason: text}
}

// given takes apart what a section says behind a key: ` = "1ms": must be 1s..30s`. A text is quoted, as TOML has it, where the section does
// not do so.
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

// whence is the place of a key's value. A default can be at fault too, when another key bounds it.
func (l *loader) whence(key string) string {
	if from, set := l.from[key]; set {
		return from.where
	}
	if l.from == nil {
		return "" // what is judged was not loaded
	}
	return FromDefault
}
