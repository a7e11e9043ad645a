"""The style sheet of the report's page."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ground: #f4f5f7; --ink: #1d2430; --quiet: #5b6472; --line: #dfe3e8;
  --good: #1b7f4b; --bad: #b3261e; --warn: #8a5a00;
  --c0: #2f6fd6; --c1: #d2691e; --c2: #12877f; --c3: #7a4fc4; --c4: #b8860b; --c5: #c2344d;
  --c6: #4f7d1f; --c7: #8b94a1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #1a1f27; --ground: #12161c; --ink: #e7ebf0; --quiet: #a2acba; --line: #323a46;
    --good: #4cc38a; --bad: #ff7b72; --warn: #e3b341;
    --c0: #6ea8fe; --c1: #f0a060; --c2: #4fc4ba; --c3: #b794f6; --c4: #e0bb4d; --c5: #ff8fa3;
    --c6: #a3cf6b; --c7: #79828f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
header { padding: 22px 26px; background: var(--paper); border-radius: 12px;
  border-left: 8px solid var(--tone); }
header.clean { --tone: var(--good); }
header.faulty { --tone: var(--bad); }
header.incomplete { --tone: var(--warn); }
header p { margin: 4px 0; }
h1 { margin: 2px 0 4px; font-size: 34px; line-height: 1.2; color: var(--tone); }
h2 { margin: 0 0 12px; font-size: 20px; }
h3 { margin: 0 0 6px; font-size: 16px; }
.over { font-weight: 600; overflow-wrap: anywhere; }
.quiet, figcaption { color: var(--quiet); font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px;
  margin: 16px 0; }
.tiles div { background: var(--paper); border-radius: 12px; padding: 14px 16px; }
.tiles dd { margin: 0; font-size: 26px; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles dt { color: var(--quiet); font-size: 14px; }
section { background: var(--paper); border-radius: 12px; padding: 20px 22px; margin: 16px 0;
  min-width: 0; }
section section { margin: 0; padding: 0; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
figcaption { margin-top: 8px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr));
  gap: 16px; }
.pair > section { margin: 0; }
ul { margin: 0; padding-left: 20px; }
li { margin: 6px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 7px 10px 7px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; }
td { white-space: nowrap; font-variant-numeric: tabular-nums; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 200px; }
.tag { font-weight: 600; white-space: nowrap; }
.tag.fault { color: var(--bad); }
.tag.warning { color: var(--warn); }
.tag.information { color: var(--quiet); }
.mark { display: inline-block; min-width: 24px; padding: 0 5px; border-radius: 12px;
  border: 1.5px solid currentColor; text-align: center; font-weight: 700; font-size: 13px; }
.mark.fault { color: var(--bad); }
.mark.warning, .mark.information { color: var(--warn); }
.alarm { color: var(--bad); font-weight: 600; }
.wide svg { min-width: 640px; }
td ol { margin: 6px 0; padding-left: 24px; }
pre { margin: 0; padding: 12px 14px; background: var(--ground); border-radius: 8px;
  font-size: 13px; }
details { margin-top: 12px; }
summary { cursor: pointer; color: var(--quiet); font-size: 14px; }
:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
@media print { body { background: none; } section, header { break-inside: avoid; } }
"""
