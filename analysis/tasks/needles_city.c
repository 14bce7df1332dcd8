/* needles_city.c - cities that needles speak of: one word each, none twice. */
#include "analysis/tasks/needles_parts.h"

const char *const NEEDLES_CITY[NEEDLES_CITIES] = {
    "Accra", "Adelaide", "Algiers", "Amman", "Amsterdam", "Ankara", "Athens", "Auckland",
    "Baghdad", "Bangkok", "Barcelona", "Beijing", "Beirut", "Belgrade", "Berlin", "Bogota",
    "Bordeaux", "Boston", "Bremen", "Brisbane", "Brussels", "Bucharest", "Budapest", "Cairo",
    "Caracas", "Casablanca", "Chennai", "Chicago", "Cologne", "Colombo", "Copenhagen",
    "Dakar", "Dallas", "Damascus", "Delhi", "Denver", "Detroit", "Dhaka", "Doha", "Dresden",
    "Dubai", "Dublin", "Durban", "Florence", "Geneva", "Hamburg", "Hanoi", "Harare", "Havana",
    "Helsinki", "Honolulu", "Houston", "Istanbul", "Izmir", "Jakarta", "Jerusalem", "Kampala",
    "Karachi", "Kolkata", "Krakow", "Kyiv", "Kyoto", "Lagos", "Lahore", "Leipzig", "Lima",
    "Lisbon", "London", "Luanda", "Lusaka", "Lyon", "Madrid", "Manila", "Marseille",
    "Melbourne", "Milan", "Minsk", "Montevideo", "Montreal", "Moscow", "Mumbai", "Munich",
    "Muscat", "Nagoya", "Nairobi", "Naples", "Odessa", "Osaka", "Oslo", "Ottawa", "Paris",
    "Perth", "Phoenix", "Porto", "Prague", "Pretoria", "Quito", "Riga", "Riyadh", "Rome",
    "Santiago", "Sarajevo", "Seattle", "Seoul", "Seville", "Shanghai", "Singapore", "Skopje",
    "Sofia", "Stockholm", "Sydney", "Taipei", "Tallinn", "Tehran", "Tirana", "Tokyo",
    "Toronto", "Toulouse", "Tunis", "Turin", "Valencia", "Vancouver", "Venice", "Vienna",
    "Vilnius", "Warsaw", "Wellington", "Zagreb",
};
