package record_test

import (
	"slices"
	"strings"
	"testing"

	"ronbox/engines/rewarder/record"
)

// Every fault of a policy is named, one per member. A valid policy has none.
func TestPolicyFaults(t *testing.T) {
	p := record.Policy{
		ID: "p", Tenant: "default", Version: "1", Asset: "ron", Excess: record.Residual, Rounding: record.Floor, Account: "pool:p",
		Source: "protocol_pool", Metrics: map[string]record.Weight{"requests": {1, 1, 0}},
	}
	good := string(p.Bytes())
	for _, tt := range []struct {
		change []string // old, new, …
		want   []string // fields
	}{
		{nil, nil},
		{[]string{`"scale":"0"`, `"scale":"19"`, `"den":"1"`, `"den":"0"`}, []string{"scale", "metrics.requests.den"}},
		{[]string{`"id":"p",`, ``}, []string{"id"}}, // and no fault of its grammar
		{[]string{`"num":"1",`, ``}, []string{"metrics.requests.num"}},
		{[]string{`"mode":"share"`, `"mode":"tariff"`, `"tenant"`, `"tenants"`}, []string{"mode", "tenant", "tenants"}},
		{[]string{`"mode":"share",`, `"mode":"share","mode":"share",`}, []string{"mode"}},
		{[]string{`{"asset"`, `["asset"`}, []string{"document"}},
	} {
		text := strings.NewReplacer(tt.change...).Replace(good)
		var got []string
		for _, f := range record.PolicyFaults([]byte(text)) {
			got = append(got, f.Field)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: faults of %v, want %v", tt.change, got, tt.want)
		}
		if _, err := record.ParsePolicy([]byte(text)); (err != nil) != (len(tt.want) > 0) {
			t.Errorf("%v: %v", tt.change, err)
		}
	}
}
