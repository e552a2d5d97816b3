package config

import (
	_ "embed" // the commented file
	"strings"
)

// commented lists every key with its default behind a "#", under its section. Text lines begin with "# ".
//
//go:embed ronbox.toml
var commented string

// Template is the file that init writes: every key, commented, with its default; keys of set get their value and stand
// uncommented.
func Template(set map[string]string) string {
	section := ""
	lines := strings.SplitAfter(commented, "\n")
	for i, line := range lines {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimRight(name, "]\n")
			continue
		}
		key, _, isKey := strings.Cut(strings.TrimPrefix(line, "#"), " = ")
		if value, ok := set[section+"."+key]; ok && isKey && strings.HasPrefix(line, "#") {
			lines[i] = key + " = " + tomlString(value) + "\n"
		}
	}
	return strings.Join(lines, "")
}
