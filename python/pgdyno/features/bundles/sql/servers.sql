SELECT name, server FROM arm
UNION
SELECT name, server FROM crash_arm
ORDER BY name, server
