package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"pgregory.net/rapid"

	"ronbox/appliance/unit"
)

// Whatever valid values are set, in whatever place, writing them as TOML or as variables and loading gives them back.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		want := drawConfig(rt)
		want.Node.DataDir = dir
		text, err := toml.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		fromFile, err := Load(LoadOptions{File: write(t, string(text))})
		if err != nil {
			rt.Fatalf("%v in\n%s", err, text)
		}
		if !reflect.DeepEqual(fromFile, want) {
			rt.Fatalf("file gives %+v, want %+v", fromFile, want)
		}
		fromEnv, err := Load(LoadOptions{DataDir: dir, Env: environ(want)})
		if err != nil || !reflect.DeepEqual(fromEnv, want) {
			rt.Fatalf("variables give %+v (%v), want %+v", fromEnv, err, want)
		}
	})
}

func drawConfig(t *rapid.T) *Config {
	c := Default()
	c.Node.DrainCap = drawDuration(t, time.Second, 30*time.Second)
	c.Node.Predrain = drawDuration(t, 0, 5*time.Minute)
	c.Node.AbortGrace = drawDuration(t, 10*time.Millisecond, 5*time.Second)
	c.Server.Bind = fmt.Sprintf("127.0.0.1:%d", rapid.IntRange(0, 65535).Draw(t, "port"))
	c.Server.AdminOnTCP = rapid.Bool().Draw(t, "admin_on_tcp")
	c.Store.MaxBytes = unit.Size(rapid.Int64Range(1<<30, 1<<40).Draw(t, "max_bytes"))
	c.Log.Format = rapid.SampledFrom([]string{"json", "text"}).Draw(t, "format")
	c.Registry.Origin = rapid.StringMatching(`[a-z]{1,12}\.[a-z]{2,5}/[a-z0-9]{1,26}`).Draw(t, "origin")
	c.Registry.Bus.ChannelBound = rapid.IntRange(64, 65_536).Draw(t, "channel_bound")
	return c
}

func drawDuration(t *rapid.T, lo, hi time.Duration) unit.Duration {
	return unit.Duration(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, "duration"))
}

// environ writes every key of c as its variable.
func environ(c *Config) []string {
	var out []string
	for _, l := range leaves(c) {
		text := fmt.Sprint(l.value.Interface())
		switch v := l.value.Interface().(type) {
		case encoding.TextMarshaler:
			b, _ := v.MarshalText()
			text = string(b)
		case []string:
			text = strings.Join(v, ",")
		case map[string][]string:
			text = "{}" // drawn configurations leave it empty
		}
		out = append(out, envName(l.key)+"="+text)
	}
	return out
}

// The commented file names every key once, no other, each with its default.
func TestTemplateIsEveryDefault(t *testing.T) {
	plain := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(Template(nil), "$1")
	entries, err := parseFile(FileName, []byte(plain), func(key string) bool { return find(leaves(Default()), key) != nil })
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, e := range entries {
		written[e.key] = true
	}
	for _, l := range leaves(Default()) {
		if !written[l.key] {
			t.Errorf("%s is not in the file", l.key)
		}
	}
	cfg, err := Load(LoadOptions{File: write(t, plain)})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cfg, Default()) {
		t.Errorf("the file says %+v, the defaults are %+v", cfg, Default())
	}
}

func TestTemplateSets(t *testing.T) {
	cfg, err := Load(LoadOptions{File: write(t, Template(map[string]string{"registry.origin": "ronbox.local/x"}))})
	if err != nil || cfg.Registry.Origin != "ronbox.local/x" {
		t.Errorf("origin %+v, %v", cfg, err)
	}
}

// No text makes the loader panic, and every refusal says where.
func FuzzConfig(f *testing.F) {
	f.Add("[server]\nbind = \"127.0.0.1:0\"\n", "x")
	f.Add("[registry]\nbus = {channel_bound = 1, emit_updates = 3}\n[a.b]\nc = [1, {d = 2}]\n", "1")
	f.Add("[[node]]\n", "true")
	f.Add("\"a.b\".c = 1979-05-27T07:32:00Z", "{ a = 1 }")
	f.Add(Template(nil), "[")
	f.Fuzz(func(t *testing.T, text, value string) {
		l := newLoader()
		l.document(FileName, []byte(text))
		l.variables(l.environment([]string{"RONBOX_NODE__PREDRAIN=" + value, "RONBOX_SERVER__METRICS_ALLOW=" + value}))
		l.validate()
		if len(Faults(errors.Join(l.faults...))) != len(l.faults) {
			t.Errorf("%q is refused without a place: %v", text, l.faults)
		}
	})
}
