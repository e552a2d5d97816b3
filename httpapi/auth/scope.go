package auth

import (
	"fmt"
	"slices"
	"strings"
)

// ScopeAdmin implies every scope.
const ScopeAdmin = "node.admin"

// NormalScope gives the spelling "service.verb" of a scope; "service:verb" is read as the same.
func NormalScope(s string) (string, error) {
	service, verb, ok := strings.Cut(s, ".")
	if !ok {
		service, verb, ok = strings.Cut(s, ":")
	}
	if !ok || !scopeWord(service) || !scopeWord(verb) {
		return "", fmt.Errorf("%q is not a scope such as registry.propose", s)
	}
	return service + "." + verb, nil
}

// scopeWord takes lower-case words, digits and underscores after the first letter.
func scopeWord(w string) bool {
	for i := range len(w) {
		c := w[i]
		if (c < 'a' || c > 'z') && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return w != ""
}

// Implies says whether who holds scopes holds want. An empty want asks for none.
func Implies(scopes []string, want string) bool {
	return want == "" || slices.Contains(scopes, want) || slices.Contains(scopes, ScopeAdmin)
}

// mintScope is NormalScope for those who mint: there a bare verb of the wallet is read as the wallet's, since no other service has it.
func mintScope(s string) (string, error) {
	switch s {
	case "read", "issue", "transfer", "burn":
		return "wallet." + s, nil
	}
	return NormalScope(s)
}

// Meet are the scopes that both lists hold, once each.
func Meet(a, b []string) []string {
	both := []string{}
	for _, s := range slices.Concat(a, b) {
		if Implies(a, s) && Implies(b, s) && !slices.Contains(both, s) {
			both = append(both, s)
		}
	}
	return both
}
