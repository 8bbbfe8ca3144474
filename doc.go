// Package kiel is the root of the kiel module; the code lives in the packages below it.
package kiel
