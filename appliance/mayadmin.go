package appliance

import (
	"fmt"
	"strings"

	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
)

// denied refuses what by may not do; the reason is for the log.
func denied(by engines.Actor, reason string) error {
	return &auth.DeniedError{
		TID: by.CapID, Kid: by.Kid, Tenant: by.Tenant, Scope: "node.token", Reasons: []string{reason}, Fingerprint: by.Fingerprint,
	}
}

// mayMint keeps who may mint from minting more than they are: a token over the node itself takes an administrator, and one
// tenant mints for no other. What their own token was narrowed to is held by what they mint too, else they mint none.
func mayMint(by engines.Actor, m wire.MintRequest) (held []string, err error) {
	if by.Tenant != "" && m.Tenant != by.Tenant {
		return nil, denied(by, "it mints for its own tenant only")
	}
	for _, s := range m.Scopes {
		if normal, err := auth.NormalScope(s); !by.Admin && err == nil && strings.HasPrefix(normal, ownService+".") {
			return nil, denied(by, "only node.admin mints a scope of the node")
		}
	}
	for _, c := range by.Caveats {
		switch key, _, _ := strings.Cut(c, " "); key {
		case "tenant", "scope": // judged above
		case "aud", "amnesia", "exp", "ip", "nbf":
			held = append(held, c)
		default: // a count would begin anew in each token, and a path is that of minting itself
			return nil, denied(by, fmt.Sprintf("a token with a caveat %s mints none", key))
		}
	}
	return held, nil
}

// mayRevoke keeps who may mint from ending what is not theirs: keys are the administrator's, another tenant's tokens are
// that tenant's.
func mayRevoke(by engines.Actor, what, value string) error {
	switch {
	case (what == revokeKid || what == revokeEpoch) && !by.Admin:
		return denied(by, "only node.admin revokes a key, or all")
	case what != revokeTID && by.Tenant != "" && (what != revokeTenant || value != by.Tenant):
		return denied(by, "it revokes tokens of its own tenant only")
	}
	return nil
}
