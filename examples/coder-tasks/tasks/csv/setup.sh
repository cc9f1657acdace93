set -eu
printf 'name,email\n Zoe , ZOE@Example.org\nAdam,adam@example.org\nNobody,\n"Lee, Kim",KIM@example.org\nAdam B,ADAM@example.org \n' > people.csv
