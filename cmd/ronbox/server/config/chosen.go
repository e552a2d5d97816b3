package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ronbox/appliance/unit"
)

// ServiceNames returns the services that a node may run or not, in the order in which they are
// built. The ledger always runs.
func ServiceNames() []string { return []string{"registry", "wallet", "rewarder", "edge", "index"} }

// switchOf returns the key of the configuration that turns a service of ServiceNames on.
func switchOf(cfg *Config, name string) *bool {
	return map[string]*bool{
		"registry": &cfg.Registry.Enabled,
		"wallet":   &cfg.Wallet.Enabled,
		"rewarder": &cfg.Rewarder.Enabled,
		"edge":     &cfg.Edge.Enabled,
		"index":    &cfg.Index.Enabled,
	}[name]
}

// Choose turns the named services on and all others off. It returns an error, and changes nothing,
// if a name is unknown or if a service lacks one that it needs.
func Choose(cfg *Config, names []string) error {
	known := ServiceNames()
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		hint := ""
		if near := unit.Nearest(name, known); near != "" {
			hint = fmt.Sprintf("; did you mean %s?", near)
		}
		return fmt.Errorf("there is no service %q: name some of %s%s", name, strings.Join(known, ", "), hint)
	}
	has := func(name string) bool { return slices.Contains(names, name) }
	switch {
	case len(names) == 0:
		return fmt.Errorf("name some of %s", strings.Join(known, ", "))
	case has("rewarder") && !has("wallet"):
		return errors.New("the rewarder needs the wallet, which funds the accounts that it pays from: name both")
	case cfg.Registry.Follow.URL != "" && !has("registry"):
		return errors.New("a node that follows a registry needs the registry: name it too")
	}
	for _, name := range known {
		*switchOf(cfg, name) = has(name)
	}
	return nil
}

// Chosen returns the services of ServiceNames that cfg has on, and those that it has off.
func Chosen(cfg *Config) (on, off []string) {
	for _, name := range ServiceNames() {
		if *switchOf(cfg, name) {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	return on, off
}
