// Package browser tests the page of "fencepost serve" in a real Chromium: make see. It makes a
// failover and wants the page to show it, and lets axe-core look for what keeps people from using it.
package browser
