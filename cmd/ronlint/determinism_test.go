package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestDeterminism(t *testing.T) {
	for _, pkg := range []string{"store", "spices", "cooks"} {
		t.Run(pkg, func(t *testing.T) {
			analysistest.Run(t, analysistest.TestData(), newDeterminism(), module+"/"+pkg)
		})
	}
}
