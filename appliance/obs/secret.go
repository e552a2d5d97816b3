package obs

import (
	"fmt"
	"strings"
)

// hidden is what a secret prints as.
const hidden = "***"

// Secret is a text that prints as *** wherever it is formatted, logged or encoded. Reveal gives the text itself.
type Secret string

// Reveal is the text itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the text.
func (s Secret) String() string { return hidden }

// Format hides the text from every verb of package fmt.
func (s Secret) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verbOf(verb)), hidden)
}

// verbOf keeps the quotes of %q.
func verbOf(verb rune) rune {
	if verb == 'q' {
		return verb
	}
	return 's'
}

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// secretKey reports whether a name is that of a secret: one of its words is ("api_key", "tokens", "authToken"), and its last word does not
// say that the value is only something about it ("token_id", "key_hint", "body_bytes").
func secretKey(key string) bool {
	named, last := false, ""
	for rest := key; rest != ""; {
		last, rest = nextWord(rest)
		named = named || secretWord(last)
	}
	return named && !aboutWord(last)
}

// nextWord cuts a name behind its first word, which a mark or a capital letter ends.
func nextWord(name string) (word, rest string) {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_' || c == '-' || c == '.' || c == ' ':
			return name[:i], name[i+1:]
		case i > 0 && upper(c) && (!upper(name[i-1]) || i+1 < len(name) && lower(name[i+1])):
			return name[:i], name[i:]
		}
	}
	return name, ""
}

func upper(c byte) bool { return c >= 'A' && c <= 'Z' }
func lower(c byte) bool { return c >= 'a' && c <= 'z' }

func secretWord(w string) bool {
	switch strings.TrimSuffix(strings.ToLower(w), "s") {
	case "authorization", "cookie", "token", "macaroon", "secret", "key", "salt", "body", "password", "passphrase", "credential", "bearer", "jwt", "seed":
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

// Hides reports whether a field of this name, "auth.api_key", is hidden in log lines and wherever else the node shows it.
func Hides(name string) bool { return secretKey(name) }
