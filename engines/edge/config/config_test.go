package config_test

import (
	"strings"
	"testing"

	"ronbox/engines/edge/config"
)

// A key out of bounds is refused with its name.
func TestConfig(t *testing.T) {
	t.Parallel()
	if err := config.DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*config.Config){
		"mode":                            func(c *config.Config) { c.Mode = "on" },
		"allow":                           func(c *config.Config) { c.Mode = config.ModeLive },
		"allow = \"a.b\": is named twice": func(c *config.Config) { c.Allow = []string{"a.b", "a.b"} },
		"public_url = \"maps.example\"":   func(c *config.Config) { c.PublicURL = "maps.example" },
		"public_url = \"ftp://a.b\"":      func(c *config.Config) { c.PublicURL = "ftp://a.b" },
		"public_url = \"https://a.b/?c\"": func(c *config.Config) { c.PublicURL = "https://a.b/?c" },
		"public_url = \"https://u@a.b\"":  func(c *config.Config) { c.PublicURL = "https://u@a.b" },
		"public_url = \"https://\"":       func(c *config.Config) { c.PublicURL = "https://" },
		"allow_private":                   func(c *config.Config) { c.AllowPrivate = []string{"10.0.0.1/8"} },
		"ingress.timeout_secs":            func(c *config.Config) { c.Ingress.TimeoutSecs = 0 },
		"ingress.max_inflight":            func(c *config.Config) { c.Ingress.MaxInflight = 0 },
		"ingress.max_inflight = 511: must be at least queues.work_tx": func(c *config.Config) { c.Ingress.MaxInflight = 511 },
		"cas.max_pinned":                                   func(c *config.Config) { c.CAS.MaxPinned = c.CAS.MaxBytes },
		"ingress.rps_limit":                                func(c *config.Config) { c.Ingress.RPSLimit = 0 },
		"ingress.body_bytes":                               func(c *config.Config) { c.Ingress.BodyBytes = 1 },
		"ingress.decompress_max_ratio":                     func(c *config.Config) { c.Ingress.DecompressMaxRatio = -1 },
		"ingress.decompress_abs_bytes":                     func(c *config.Config) { c.Ingress.DecompressAbsBytes = 1 },
		"queues.work_tx":                                   func(c *config.Config) { c.Queues.WorkTX = 0 },
		"retry.live_fill.base_ms":                          func(c *config.Config) { c.Retry.LiveFill.BaseMS = 801 },
		"retry.live_fill.max_ms":                           func(c *config.Config) { c.Retry.LiveFill.MaxMS = 0 },
		"retry.live_fill.max_retries":                      func(c *config.Config) { c.Retry.LiveFill.MaxRetries = 6 },
		"fill.workers":                                     func(c *config.Config) { c.Fill.Workers = 0 },
		"fill.max_object_bytes":                            func(c *config.Config) { c.Fill.MaxObjectBytes = c.CAS.MaxBytes + 1 },
		"fill.idle":                                        func(c *config.Config) { c.Fill.Idle = 1 },
		"fill.partial_bytes":                               func(c *config.Config) { c.Fill.PartialBytes = -1 },
		"cas.max_bytes":                                    func(c *config.Config) { c.CAS.MaxBytes = 1 },
		"cas.max_urls":                                     func(c *config.Config) { c.CAS.MaxURLs = 1 },
		"cas.min_free":                                     func(c *config.Config) { c.CAS.MinFree = -1 },
		"style.glyphs = \"https://a.b/{fontstack}\"":       func(c *config.Config) { c.Style.Glyphs = "https://a.b/{fontstack}" },
		"style.glyphs = \"https://a.b/{range}\"":           func(c *config.Config) { c.Style.Glyphs = "https://a.b/{range}" },
		"style.glyphs = \"/{fontstack}/{range}\"":          func(c *config.Config) { c.Style.Glyphs = "/{fontstack}/{range}" },
		"style.glyphs = \"ftp://a.b/{fontstack}/{range}\"": func(c *config.Config) { c.Style.Glyphs = "ftp://a.b/{fontstack}/{range}" },
		"scrub.every":                                      func(c *config.Config) { c.Scrub.Every = 1 },
		"scrub.rate":                                       func(c *config.Config) { c.Scrub.Rate = 1 },
		"drain_deadline":                                   func(c *config.Config) { c.DrainDeadline = 0 },
	} {
		c := config.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, public := range []string{
		"https://maps.example", "http://10.0.0.1:8080/", "https://example.com/behind/a/proxy",
	} {
		c := config.DefaultConfig()
		c.PublicURL = public
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", public, err)
		}
	}
}
