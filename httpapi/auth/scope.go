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

// grants says whether a list of scopes holds want. An empty want asks for none.
func grants(scopes []string, want string) bool {
	return want == "" || slices.Contains(scopes, want) || slices.Contains(scopes, ScopeAdmin)
}

// parseList reads comma-separated values, at least one; an item that one refuses spoils the list.
func parseList[T any](value string, one func(string) (T, error)) ([]T, error) {
	items := make([]T, 0, 1+strings.Count(value, ","))
	for item := range strings.SplitSeq(value, ",") {
		v, err := one(item)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return items, nil
}
