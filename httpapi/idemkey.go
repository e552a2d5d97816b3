package httpapi

import "net/http"

// idemHeader carries a key of the caller's own choosing: the same request under the same key is done once.
const idemHeader = "Idempotency-Key"

// maxIdemKey is the longest key in characters: room for a ULID, a UUID or a digest in hexadecimal.
const maxIdemKey = 64

// Hints of what is wrong with a key; none repeats it.
const (
	keyMissing = "is missing: choose a new one for every new request, and send the same one whenever that request is repeated"
	keyGrammar = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -"
)

// idempotencyKey is the key of a request that must have one.
func idempotencyKey(r *http.Request) (string, error) {
	v, given, err := single(r, idemHeader)
	if err != nil {
		return "", err
	}
	if !given || v == "" {
		return "", &HeaderError{idemHeader, keyMissing}
	}
	key, ok := parseIdemKey(v)
	if !ok {
		return "", &HeaderError{idemHeader, keyGrammar}
	}
	return key, nil
}

// parseIdemKey takes a key as it is, or as the string of a structured field: in quotes. Both name the same request. None of
// its characters needs an escape, and it has no parameters.
func parseIdemKey(v string) (string, bool) {
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	if v == "" || len(v) > maxIdemKey {
		return "", false
	}
	for i := range len(v) {
		switch c := v[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return "", false
		}
	}
	return v, true
}
