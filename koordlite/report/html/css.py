"""The style of the HTML pages: one sheet, light and dark, phone and desktop."""

SHEET = """
:root { color-scheme: light dark;
  --ground: #fbfbfa; --card: #ffffff; --ink: #1d2327; --soft: #5b6670; --line: #dfe3e6; --mark: #eef1f3;
  --node: #6b7680; --prod: #1f6fd6; --be: #b85c08; --limit: #111827; --above: #c0267e; --aid: #8a5cd1;
  --good: #187546; --warn: #746000; --bad: #b3261e;
  --reserved: #86616f; --system: #3f4850; --lse: #7b3fc4; --lsr: #0a7f7f; --ls: var(--prod); --both: var(--be); }
@media (prefers-color-scheme: dark) { :root {
  --ground: #14181b; --card: #1c2226; --ink: #e7ebee; --soft: #9fabb5; --line: #333c43; --mark: #262e34;
  --node: #93a0ab; --prod: #6ea8ff; --be: #f0a04b; --limit: #f3f5f7; --above: #f58ac4; --aid: #b798f0;
  --good: #5fd39a; --warn: #e6d250; --bad: #ff8a80;
  --reserved: #c39aa9; --system: #c2ccd4; --lse: #b98cf0; --lsr: #4cc9c9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main, footer { max-width: 1180px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 28px; }
footer { padding-top: 8px; padding-bottom: 40px; color: var(--soft); font-size: 14px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 18px; line-height: 1.3; margin: 0 0 10px; }
h3 { font-size: 15px; margin: 18px 0 6px; }
a { color: var(--prod); }
.live { position: sticky; top: 0; z-index: 1; margin: 0; padding: 8px 20px; background: var(--bad);
  color: var(--card); }
.live:empty { display: none; }
.lead { margin: 0 0 20px; color: var(--soft); overflow-wrap: anywhere; }
.note { margin: 0 0 12px; color: var(--soft); font-size: 14px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin: 16px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(220px, 1fr)); gap: 12px; margin: 16px 0; }
.tiles.five { grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile-label { color: var(--soft); font-size: 13px; }
.tile-value { font-size: 24px; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.tile-note { color: var(--soft); font-size: 13px; }
.tile.good .tile-value { color: var(--good); } .tile.warn .tile-value { color: var(--warn); }
.tile.bad .tile-value { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
td { overflow-wrap: anywhere; min-width: 5em; }
td[data-label="pod"] { min-width: 12em; font-weight: 600; }
.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 0; }
code { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--mark);
  border-radius: 4px; padding: 1px 5px; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: minmax(7em, max-content) 1fr; gap: 4px 18px; margin: 0;
  font-size: 14px; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
td .badge { margin-right: 6px; } td .note { margin: 0; } .word { white-space: nowrap; }
.badge { display: inline-block; border-radius: 999px; padding: 0 9px; font-size: 13px; background: var(--mark);
  white-space: nowrap; }
.badge.good { color: var(--good); } .badge.warn { color: var(--warn); } .badge.bad { color: var(--bad); }
details summary { cursor: pointer; color: var(--soft); font-size: 14px; margin: 2px 0; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 10px 0 0; font-size: 14px; padding: 0;
  list-style: none; }
.legend li { display: flex; align-items: center; gap: 7px; }
.swatch { width: 20px; height: 0; border-top: 3px solid; flex: none; }
.swatch.dashed { border-top-style: dashed; }
.box { width: 13px; height: 13px; border-radius: 3px; flex: none; }
.chart { position: relative; margin: 12px 0 26px 40px; }
.chart.marked { margin-top: 28px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 4px 28px; }
.chart svg { display: block; width: 100%; height: 100%; overflow: visible; }
.chart .y, .chart .x { position: absolute; color: var(--soft); font-size: 12px; line-height: 1;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.chart .y { right: 100%; margin-right: 8px; transform: translateY(-50%); }
.chart .x { top: 100%; margin-top: 8px; transform: translateX(-50%); }
.chart .x.first { transform: none; } .chart .x.last { transform: translateX(-100%); }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.area { stroke: none; fill-opacity: .22; }
.series { fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.band { fill: transparent; } .band:hover { fill: var(--ink); fill-opacity: .09; }
.mark { fill: var(--ink); } .mark:hover { fill: var(--bad); }
.tick { width: 3px; height: 12px; background: var(--ink); flex: none; }
.filter input { font: inherit; font-size: 14px; padding: 4px 8px; width: min(26em, 100%); color: var(--ink);
  background: var(--ground); border: 1px solid var(--soft); border-radius: 6px; }
[hidden] { display: none !important; }
.cpus { display: flex; flex-wrap: wrap; gap: 3px; margin: 4px 0 12px; padding: 0; list-style: none; }
.cpus li { min-width: 27px; text-align: center; border-radius: 4px; padding: 3px 2px; font-size: 12px; line-height: 1.2;
  font-variant-numeric: tabular-nums; color: #fff; }
@media (prefers-color-scheme: dark) { .cpus li { color: #10151a; } }
@media (max-width: 560px) { header, main, footer { padding-left: 12px; padding-right: 12px; }
  section { padding: 14px 12px; }
  .tiles, .tiles.five { grid-template-columns: repeat(2, minmax(0, 1fr)); } h1 { font-size: 22px; }
  .tile-value { font-size: 20px; } .tile { padding: 10px 12px; } .stack thead { display: none; }
  .stack tr, .stack td { display: block; border: 0; }
  .stack td { padding: 1px 0; text-align: left; }
  .stack td[data-label]:not(:first-child)::before { content: attr(data-label) " "; color: var(--soft); }
  .stack td[data-label]:not(:first-child, :last-child) { display: inline-block; min-width: 0; margin-right: 14px; }
  .stack tr { border-bottom: 1px solid var(--line); padding: 8px 0; } }
@media print { section { break-inside: avoid; } .band:hover { fill: transparent; } }
"""
