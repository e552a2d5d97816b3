package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
)

// narrowing is a flag that stands for a caveat.
type narrowing struct {
	flag  string
	head  string // of the caveat, up to its value
	usage string
}

// narrowings are the caveats that mint and attenuate have flags for; --caveat takes any in its own spelling.
func narrowings() []narrowing {
	return []narrowing{
		{"aud", "aud = ", "the only `service` it is good for, such as wallet"},
		{"account", "account = ", "the only `account` it may touch, or a prefix*"},
		{"asset", "asset = ", "the only `asset` it may move"},
		{"ceiling", "ceiling <= ", "most minor units one operation may move (`N`, needs --asset)"},
		{"ceiling-daily", "ceiling_daily <= ", "most minor units it may move in a day (`N`)"},
		{"max-runs", "max_runs <= ", "how often it may start a run (`N`)"},
		{"epoch", "epoch = ", "the only `epoch` it is good for"},
		{"signer", "registry.signer = ", "the only signer `id` whose approvals it may send"},
		{"ip", "ip = ", "networks it may come from, as `CIDR,CIDR`"},
		{"nbf", "nbf > ", "not good before this `time` (RFC 3339)"},
		{"max-bytes", "max_bytes <= ", "largest body it may send (`N` bytes)"},
		{"rate", "rate <= ", "how often it may be used (`N/s`)"},
	}
}

// caveatFlags are the narrowings given, and what --caveat spells out.
type caveatFlags struct {
	values  map[string]*string // by flag
	amnesia bool
	spelled []string
}

func (c *caveatFlags) register(cmd *cobra.Command) {
	c.values = map[string]*string{}
	f := cmd.Flags()
	for _, n := range narrowings() {
		c.values[n.flag] = f.String(n.flag, "", n.usage)
	}
	f.BoolVar(&c.amnesia, "amnesia", false, "good only on a node that keeps nothing on disk")
	f.StringArrayVar(&c.spelled, "caveat", nil, "a caveat as it is written, such as \"ip = 10.0.0.0/8\"; repeat for more")
}

// list is the caveats in a fixed order.
func (c *caveatFlags) list() []string {
	var out []string
	for _, n := range narrowings() {
		if v := *c.values[n.flag]; v != "" {
			out = append(out, n.head+v)
		}
	}
	if c.amnesia {
		out = append(out, "amnesia = on")
	}
	return append(out, c.spelled...)
}

// holderFlags are the narrowings that the node writes itself when it mints, and a holder who attenuates as caveats.
type holderFlags struct {
	scopes  []string
	tenant  string
	path    string
	methods []string
	ttl     string
}

func (h *holderFlags) register(cmd *cobra.Command, scope, ttl string) {
	f := cmd.Flags()
	f.StringSliceVar(&h.scopes, "scope", nil, scope)
	f.StringVar(&h.ttl, "ttl", "", ttl)
	f.StringVar(&h.tenant, "tenant", "", "the `tenant` it is bound to")
	f.StringVar(&h.path, "path", "", "the only `path` it is good for, /p or /p/*")
	f.StringSliceVar(&h.methods, "method", nil, "the only methods it is good for")
}

// list writes the flags as caveats; a time to live begins now.
func (h *holderFlags) list(now time.Time) ([]string, error) {
	var out []string
	add := func(head, value string) {
		if value != "" {
			out = append(out, head+value)
		}
	}
	add("scope = ", strings.Join(h.scopes, ","))
	if h.ttl != "" {
		ttl, err := unit.ParseDuration(h.ttl)
		if err != nil || ttl <= 0 {
			return nil, usage("--ttl %q: want a time such as 10m or 12h", h.ttl)
		}
		add("exp < ", now.Add(ttl.D()).UTC().Format(time.RFC3339))
	}
	add("tenant = ", h.tenant)
	add("path = ", h.path)
	add("method = ", strings.Join(h.methods, ","))
	return out, nil
}
