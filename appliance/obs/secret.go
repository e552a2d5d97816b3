package obs

import "strings"

// hidden replaces a secret in output.
const hidden = "***"

// Hides reports whether a field of this name, such as "auth.api_key", is hidden in log lines and in
// all other output of the node.
func Hides(name string) bool { return secretKey(name) }

// secretKey reports whether a name is that of a secret. One of its words names a secret ("api_key",
// "tokens", "authToken"), and its last word does not say that the value only describes it
// ("token_id", "key_hint", "body_bytes").
func secretKey(key string) bool {
	named, last := false, ""
	for rest := key; rest != ""; {
		last, rest = nextWord(rest)
		named = named || secretWord(last)
	}
	return named && !aboutWord(last)
}

// nextWord splits a name after its first word, which a separator or a capital letter ends.
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
	case "authorization",
		"cookie",
		"token",
		"macaroon",
		"secret",
		"key",
		"salt",
		"body",
		"password",
		"passphrase",
		"credential",
		"bearer",
		"jwt",
		"seed":
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
