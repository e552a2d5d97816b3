package obs

import "strings"

// hidden is what a secret prints as.
const hidden = "***"

// Secret is a text that prints as *** wherever it is formatted, logged or encoded. Reveal gives the text itself.
type Secret string

// Reveal is the text itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the text.
func (s Secret) String() string { return hidden }

// GoString hides the text from %#v.
func (s Secret) GoString() string { return hidden }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// secretKey says whether a log field's key names a secret: one of its words does ("api_key", "tokens"), and its last word does not say
// that the value is only something about it ("token_id", "key_hint", "body_bytes").
func secretKey(key string) bool {
	named, last := false, ""
	for rest, more := key, true; more; {
		var word string
		if i := strings.IndexAny(rest, "_-. "); i >= 0 {
			word, rest = rest[:i], rest[i+1:]
		} else {
			word, more = rest, false
		}
		last = word
		named = named || secretWord(word)
	}
	return named && !aboutWord(last)
}

func secretWord(w string) bool {
	switch strings.TrimSuffix(strings.ToLower(w), "s") {
	case "authorization", "cookie", "token", "macaroon", "secret", "key", "salt", "body", "password", "seed":
		return true
	}
	return false
}

func aboutWord(w string) bool {
	switch strings.ToLower(w) {
	case "id", "hint", "file", "path", "bytes", "count", "kind", "type", "b3":
		return true
	}
	return false
}

// Hides says whether a field of this name, "auth.api_key", is hidden in log lines, and so wherever else the node tells of it.
func Hides(name string) bool { return secretKey(name) }
