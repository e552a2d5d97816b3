package auth

import (
	"errors"
	"strings"
)

// maxCaveatBytes bounds one caveat's text.
const maxCaveatBytes = 1024

// caveat is one restriction, "key op value".
type caveat struct {
	key, op, value string
}

// parseCaveat takes key, operator and value with exactly one space between them.
func parseCaveat(s string) (caveat, error) {
	key, rest, ok1 := strings.Cut(s, " ")
	op, value, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || key == "" || op == "" || value == "" || value != strings.TrimSpace(value) || len(s) > maxCaveatBytes {
		return caveat{}, errors.New("not of the form key op value")
	}
	return caveat{key: key, op: op, value: value}, nil
}
