package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestLockwait(t *testing.T) {
	for _, pkg := range []string{"held", "below", "above", "excused"} {
		t.Run(pkg, func(t *testing.T) {
			analysistest.Run(t, analysistest.TestData(), newLockwait(), module+"/"+pkg)
		})
	}
}
