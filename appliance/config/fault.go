package config

import "strings"

// Fault is one thing wrong with the configuration.
type Fault struct {
	Where  string // "ronbox.toml:41:3", "RONBOX_STORE__MAX_BYTES", "flag --data-dir", "default", or "" when nothing was loaded
	Key    string // "store.max_bytes", or "" where no key is to blame
	Value  string // as it was given, quoted; "" when there is none to show
	Reason string // "must be at least 1MiB"
	Cause  error  // what the system said, if anything
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// Error renders the fault as `where: key = value: reason`, leaving out what is not known.
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

// Faults gives every fault in err, in order.
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

// flattenErrors takes apart what errors.Join put together.
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
